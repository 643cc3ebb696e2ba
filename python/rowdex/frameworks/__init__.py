"""What several frameworks need to be told, asked or refused."""
