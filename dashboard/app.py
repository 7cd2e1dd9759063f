"""The frame of the dashboard, run by Streamlit: navigation, choice of a study, saved views, and error messages."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from ablate.errors import AblateError
from dashboard.shared.evidence import show_evidence
from dashboard.shared.exports import NARROW, dark
from dashboard.shared.frame import SIDEBAR, admit, navigation, open_what_runs, side_bar, style
from dashboard.shared.running import awaits_start
from dashboard.shared.text import prose

_WATCH = """
const places = new Map()  // page and study to how far the page was scrolled
const here = () => location.pathname + ['store', 'study'].map(name => new URLSearchParams(location.search).get(name))
let wanted = null
document.addEventListener('scroll', event => {
    if (wanted === null && event.target.dataset?.testid === 'stMain') places.set(here(), event.target.scrollTop)
}, { capture: true, passive: true })
addEventListener('popstate', event => {
    if (event.state === 'followed') return
    wanted = places.get(here()) ?? 0
    const end = Date.now() + 20000
    let held = 0  // the page of before may be shown for a while yet
    const again = setInterval(() => {
        const main = document.querySelector('[data-testid=stMain]')
        const drawn = document.querySelector('[data-testid=stApp][data-test-script-state=notRunning]')
        main.scrollTop = wanted
        held = drawn && main.scrollTop >= wanted - 1 ? held + 1 : 0
        if (held > 7 || Date.now() > end) { clearInterval(again); wanted = null }
    }, 200)
    addEventListener('wheel', () => { clearInterval(again); wanted = null }, { once: true, passive: true })
})
export default function({ data, setTriggerValue }) {
    const app = document.querySelector('[data-testid=stApp]')
    const small = matchMedia('(max-width: 640px)')
    const compare = () => {
        if ((getComputedStyle(app).colorScheme === 'dark') !== data.dark) setTriggerValue('turned', true)
        if (small.matches !== data.narrow) setTriggerValue('resized', small.matches ? 'narrow' : 'wide')
    }
    small.addEventListener('change', compare)
    const observer = new MutationObserver(compare)
    observer.observe(app, { attributes: true, attributeFilter: ['class'] })
    compare()
    const follow = event => {
        const code = event.target.closest?.('pre.code')
        if (code) navigator.clipboard?.writeText(code.textContent)
        const link = event.target.closest?.(':is([data-testid=stMain], [role=dialog], [data-testid=stSidebar]) a[href]')
        const href = link?.getAttribute('href') ?? ''
        if (small.matches && link?.closest('[data-testid=stSidebar]')) return  // Streamlit closes the side bar
        if (!/^[a-z]*[?]/.test(href) || event.ctrlKey || event.metaKey || event.shiftKey) return
        event.preventDefault()
        event.stopPropagation()
        const first = link.dataset.testid?.includes('PageLink') && href[0] === '?'  // the first page has no name
        history.pushState(null, '', first ? './' + href : href)
        dispatchEvent(new PopStateEvent('popstate', { state: 'followed' }))
    }
    document.addEventListener('click', follow, true)
    return () => {
        observer.disconnect()
        small.removeEventListener('change', compare)
        document.removeEventListener('click', follow, true)
    }
}
"""


def watch_browser() -> None:
    """Follow links, scroll to where one was on the way back, and rerun the page when colours or width change.

    Streamlit would open links in texts in another tab, and on the way back from a page that its own links open forget
    the sorting and the filters. It restyles its own elements without a rerun, while figures get their colours, and
    panels their width, when the page runs.
    """
    watch = st.components.v2.component("watch", js=_WATCH)
    data = {"dark": dark(), "narrow": bool(st.session_state.get(NARROW))}
    watch(key="watch", data=data, on_turned_change=lambda: None, on_resized_change=_resize, height=1)


def _resize() -> None:
    st.session_state[NARROW] = st.session_state["watch"].resized == "narrow"


st.set_page_config(page_title="ablate", page_icon=str(Path(__file__).with_name("icon.svg")), layout="wide",
                   initial_sidebar_state=SIDEBAR)  # fmt: skip
st.html(style())

admit()
page = navigation()
open_what_runs(page)
with st.sidebar:
    side_bar(page)
    watch_browser()
try:
    if not awaits_start():
        page.run()
        show_evidence()
except AblateError as error:
    st.error(prose(str(error)))
