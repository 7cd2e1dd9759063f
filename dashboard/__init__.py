"""The dashboard: `app.py` is run by Streamlit; `views` are its pages, `shared` is what they share."""
