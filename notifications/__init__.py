"""What users are told, once each: on the page, by the browser and by e-mail; and announcements to everybody."""
