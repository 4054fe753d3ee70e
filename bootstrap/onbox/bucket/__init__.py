"""Results into a bucket while the run lasts. Comes with a profile that names one."""
