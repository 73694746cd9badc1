"""What a user says of a model, of data and of a guard, as plain values that can be kept and sent."""
