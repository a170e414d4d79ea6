"""What `make bench` runs beside `fenceline bench`: not shipped."""
