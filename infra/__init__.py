"""What exists in AWS: one construct per capability, composed and granted in regional_stack.py."""
