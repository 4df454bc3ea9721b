"""What a recipient makes of released reports: a motion model, and a tracker that follows many vehicles."""
