"""The resources in AWS: one construct per capability, composed and granted in ``regional_stack``.

``storage`` is the bucket and the table; ``functions``, ``api``, ``schedules``, ``logs`` and ``observability`` are what
their names say. ``context`` parses ``-c name=value``, ``bundling`` makes the functions' code, and ``nag`` accepts
findings of cdk-nag.
"""
