"""What people look at: contact sheets, corruption sheets, attention maps."""
