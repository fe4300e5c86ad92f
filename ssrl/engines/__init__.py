"""Who answers a search."""
