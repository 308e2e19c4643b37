"""Random calls, timed in turns with PyTorch: finds what is slow although nobody thought of measuring it. See __main__.py."""
