"""The process on every GPU host: starts, stops, reconciles and watches the containers of sessions."""
