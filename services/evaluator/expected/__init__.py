"""What each stage must publish, computed from the inputs: an oracle for each kind of stage."""
