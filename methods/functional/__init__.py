"""Pure functions behind the methods: tensors in, tensors out, no state."""
