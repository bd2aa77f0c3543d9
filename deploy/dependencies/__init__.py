"""What Tidegauge is made of besides its own code: the lock read, licences, a bill of materials."""
