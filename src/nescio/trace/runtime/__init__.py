"""What the engine runs on: GPU kernels, recordings of passes, number types, and noisy copies of inputs."""
