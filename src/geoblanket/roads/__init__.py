"""Roads: OpenStreetMap or tables to a directed road graph; places, zones and road distances."""
