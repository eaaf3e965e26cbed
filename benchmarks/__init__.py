"""Speed of ampc beside PyTorch and beside itself, on the same data, cores and moment. Run a part as `python -m benchmarks.mnist`."""
