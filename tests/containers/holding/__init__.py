"""An expert whose calls begin, say so, and wait until they are let go: `python -m experts.host …/holding`."""
