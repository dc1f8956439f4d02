"""The screens of the browser: what each shows, and its keys."""
