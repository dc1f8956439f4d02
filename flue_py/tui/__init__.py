"""Sessions in the terminal: ``flue-py browse`` (`pip install 'flue-py[tui]'`).

What is shown is worked out in modules that know no screen (`outline`, `projects`, `reading`, `masking`, `opened`);
`widgets` draw lines, and `screens` put them together and take the keys.
"""
