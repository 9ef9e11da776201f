package lane

// Warnings returns the Warning headers of the lane's responses, whoever asks. Read only.
func (l *Lane) Warnings() []string { return l.collection.Warnings() }
