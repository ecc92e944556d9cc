"""The style sheet of the HTML report. Its colours reach 4.5:1 (WCAG AA) on light and on dark screens."""

STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #ffffff; --soft: #f3f4f6; --faint: #5a6069; --line: #d4d7dc;
  --high: #b3261e; --medium: #8a5300; --low: #1f5fa8; --info: #5a6069; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e7e9; --paper: #16181b; --soft: #22252a; --faint: #a3a9b2;
  --line: #3a3f46; --high: #ff9a90; --medium: #f0b35c; --low: #8fc1ff; --info: #a3a9b2; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 60rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.3; margin: 0 0 .5rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 0 0 .4rem; }
p { margin: 0 0 .6rem; }
.tool { color: var(--faint); margin: 0; }
article { background: var(--soft); border-left: .3rem solid var(--info); border-radius: .3rem;
  padding: .8rem 1rem; margin: 0 0 1rem; }
article.high { border-color: var(--high); } article.medium { border-color: var(--medium); }
article.low { border-color: var(--low); }
.badge { font-size: .8rem; text-transform: uppercase; letter-spacing: .04em; margin-right: .4rem; color: var(--info); }
.high .badge { color: var(--high); } .medium .badge { color: var(--medium); } .low .badge { color: var(--low); }
dl { display: grid; grid-template-columns: minmax(5rem, max-content) minmax(0, 1fr); gap: .25rem 1rem;
  margin: .5rem 0; }
dt { color: var(--faint); max-width: 18rem; } dd { margin: 0; }
code, pre { font: .9rem/1.45 ui-monospace, Consolas, monospace; }
pre { margin: .2rem 0; white-space: pre-wrap; }
details { margin-top: .4rem; } summary { cursor: pointer; color: var(--faint); }
table { border-collapse: collapse; } td, th { padding: .15rem .9rem .15rem 0; text-align: right; font-weight: normal;
  font-variant-numeric: tabular-nums; } th { text-align: left; }
progress { width: 12rem; max-width: 30vw; accent-color: var(--low); }
"""

STYLE_DIGEST = "sha256-9W2sbuFGHiB+fAYzojrVPooLM3VzCgFV+CWiVZixTwY="
"""The only style that the page's policy allows; a test checks that the digest is right."""
