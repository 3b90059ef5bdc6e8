"""The pure scheduling core: types, queue, capacity, placement, backfill, forecast. No Django, no clock."""
