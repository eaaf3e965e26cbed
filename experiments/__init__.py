"""What the documents claim of training: every bundled task to its target, asynchronously and synchronously, several seeds each."""
