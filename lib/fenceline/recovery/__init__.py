"""Recovery: verify the log, rebuild items from objects, and check what a store promises."""
