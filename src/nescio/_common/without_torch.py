"""What is said where PyTorch is not installed. Nothing here may import it."""

WITHOUT_TORCH = "PyTorch is not installed here, and nescio needs it: pip install torch (https://pytorch.org for a GPU)"
