"""The broker: makes the changes in granted folders that a plugin's programs may not make themselves."""
