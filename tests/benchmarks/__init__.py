"""Measurements. Each prints ratios from one run, because absolute numbers on a shared machine mean little."""
