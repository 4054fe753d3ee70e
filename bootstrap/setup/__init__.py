"""One setup, as this machine sees it: prepare, say hello, launch, follow, report."""
