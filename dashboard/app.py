"""The frame of the dashboard, run by Streamlit: navigation, choice of a study, saved views, and error messages."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from ablate.errors import AblateError
from shared.frame import SIDEBAR, admit, choose_study, navigation, style
from shared.light import follow_light
from shared.saved import saved_views
from shared.text import prose

st.set_page_config(page_title="ablate", page_icon=str(Path(__file__).with_name("icon.svg")), layout="wide",
                   initial_sidebar_state=SIDEBAR)  # fmt: skip
st.html(style())

admit()
page = navigation()
with st.sidebar:
    choose_study()
    saved_views(page)
    follow_light()
try:
    page.run()
except AblateError as error:
    st.error(prose(str(error)))
