"""Groups of letters as the command line and Flower show them."""
