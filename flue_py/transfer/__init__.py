"""What comes into a store and goes out of it: files of other programs, bundles, copies, transcripts, rescues."""
