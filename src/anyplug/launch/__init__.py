"""What a plugin's programs get: sandbox profile, folders, environment."""
