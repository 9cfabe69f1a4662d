"""Checks of vm/run, on real machines."""
def main():
    return 0
