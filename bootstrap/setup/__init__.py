"""One setup, as this machine sees it: prepare, probe, launch, follow, report."""
