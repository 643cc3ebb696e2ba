"""What several frameworks need: their options, checks and counts."""
