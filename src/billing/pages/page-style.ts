// The style of all pages. It loads no images, fonts or other resources.
// Colours keep a contrast of at least 4.5 to 1 for text and 3 to 1 for controls and charts (WCAG 2.2, 1.4.3 and 1.4.11),
// light and dark.

/** Background colours of text: page, card, well. */
export const GROUNDS = {
  light: ['#f5f6f8', '#ffffff', '#eef1f4'],
  dark: ['#0e141a', '#17202a', '#111921'],
} as const;

export const STYLE = `
:root {
  color-scheme: light dark;
  --page: #f5f6f8; --card: #ffffff; --well: #eef1f4; --line: #d9dfe5; --edge: #76828f;
  --ink: #16202b; --soft: #505d6a; --accent: #0b6b57; --on-accent: #ffffff; --press: #095746; --bad: #a8321f;
  --series-1: #c2571a; --series-2: #5b53c8; --series-3: #8a6d00; --series-4: #b03a78; --series-rest: #6b7885;
  --shadow: 0 1px 2px rgb(22 32 43 / .05), 0 6px 20px rgb(22 32 43 / .05);
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --page: #0e141a; --card: #17202a; --well: #111921; --line: #2b3743; --edge: #74828f;
    --ink: #e6ecf1; --soft: #a3b0bc; --accent: #5fcfb2; --on-accent: #06231d; --press: #83dec6; --bad: #ff9d88;
    --series-1: #f0a35e; --series-2: #a5a0ff; --series-3: #d6bd4d; --series-4: #ee8fc0; --series-rest: #94a1ad;
    --shadow: none;
  }
}
* { box-sizing: border-box; }
[hidden] { display: none !important; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; min-height: 100vh; display: flex; flex-direction: column; }
.top, main, footer { width: 100%; max-width: 68rem; margin: 0 auto; padding-left: 1.25rem; padding-right: 1.25rem; }
.top { display: flex; flex-wrap: wrap; gap: .35rem 2rem; align-items: center; justify-content: space-between; padding-top: 1.1rem; padding-bottom: .4rem; }
.brand { color: var(--ink); font-weight: 680; font-size: 1.08rem; letter-spacing: -.01em; text-decoration: none; overflow-wrap: anywhere; min-width: 0; padding: .35rem 0; }
.brand::before { content: ""; display: inline-block; width: .72em; height: .72em; margin-right: .5em; border-radius: .2em; background: var(--accent); forced-color-adjust: none; }
nav { display: flex; gap: 1.4rem; }
nav a { color: var(--soft); text-decoration: none; padding: .35rem 0; }
nav a[aria-current] { color: var(--ink); text-decoration: underline; text-decoration-color: var(--accent); text-decoration-thickness: 2px; text-underline-offset: .4em; }
nav a:hover, .brand:hover { text-decoration: underline; }
main { flex: 1; padding-top: clamp(1.5rem, 5vw, 3.25rem); padding-bottom: clamp(2.5rem, 6vw, 4.5rem); }
footer { color: var(--soft); padding-bottom: 1.5rem; font-size: .92rem; }
footer p { margin: 0; border-top: 1px solid var(--line); padding-top: 1rem; max-width: none; overflow-wrap: anywhere; display: flex; flex-wrap: wrap; gap: .25rem 1.4rem; }
h1 { font-size: clamp(1.75rem, 5vw, 2.4rem); line-height: 1.12; letter-spacing: -.022em; margin: 0 0 .6rem; text-wrap: balance; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; line-height: 1.3; margin: 2rem 0 .6rem; }
h3 { font-size: 1rem; line-height: 1.3; margin: 0 0 .5rem; }
p { margin: 0 0 1rem; max-width: 42rem; text-wrap: pretty; }
a { color: var(--accent); text-underline-offset: .15em; }
.soft { color: var(--soft); }
.lead { color: var(--soft); font-size: 1.08rem; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
code, pre, .key-field { font: .9em/1.55 ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace; }
code { overflow-wrap: anywhere; }

.tiers { display: grid; gap: 0 1.25rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 17rem), 1fr)); margin: 2.25rem 0 0; padding: 0; list-style: none; }
.tier { margin-bottom: 1.25rem; }
.tiers:has(> :nth-child(2):last-child) { max-width: 46rem; }
.tiers:has(> :first-child:last-child) { max-width: 24rem; }
.tier, .card { background: var(--card); border: 1px solid var(--line); border-radius: .9rem; box-shadow: var(--shadow); min-width: 0; }
.tier { display: grid; grid-template-rows: subgrid; grid-row: span 7; align-content: start; row-gap: 0; padding: 1.6rem; }
.tier h2 { margin: 0; font-size: 1.02rem; font-weight: 680; color: var(--accent); }
.tier > * { min-width: 0; }
.tier .price { margin: .25rem 0 0; font-size: 2rem; line-height: 1.2; font-weight: 680; letter-spacing: -.025em; }
.tier .price small { font-size: 1rem; font-weight: 400; letter-spacing: 0; color: var(--soft); }
.tier h3 { margin: 1.4rem 0 .5rem; font-size: .84rem; font-weight: 600; color: var(--soft); }
.tier ul { margin: 0; padding: 0; list-style: none; }
.limits li { padding: .42rem 0; border-top: 1px solid var(--line); }
.limits li:last-child { border-bottom: 1px solid var(--line); }
.limits strong { font-weight: 640; font-variant-numeric: tabular-nums; white-space: nowrap; }
.models { display: flex; flex-wrap: wrap; gap: .4rem; }
.models li { min-width: 0; }
.models code { display: block; padding: .12rem .5rem; border-radius: .4rem; background: var(--well); }
.tier .families { margin-top: .55rem; color: var(--soft); font-size: .95rem; }
.tier .families li + li { margin-top: .2rem; }
.families code { color: var(--ink); }
details { margin-top: .5rem; }
summary { cursor: pointer; color: var(--accent); padding: .25rem 0; width: fit-content; }
details .models { margin-top: .4rem; }
.order { align-self: end; padding-top: 1.6rem; }
.order p { margin: 0; color: var(--soft); overflow-wrap: anywhere; }

button, .button { display: block; width: 100%; min-height: 2.9rem; padding: .6rem 1.1rem; border: 1px solid transparent; border-radius: .55rem; background: var(--accent); color: var(--on-accent); font: inherit; font-weight: 620; line-height: 1.55; text-align: center; text-decoration: none; cursor: pointer; }
button:hover, button:active, .button:hover { background: var(--press); }
.quiet { background: var(--card); color: var(--ink); border-color: var(--edge); }
.quiet:hover, .quiet:active { background: var(--well); color: var(--ink); }
.small { width: auto; min-height: 2.25rem; padding: .3rem .85rem; font-size: .92rem; line-height: 1.5; flex: none; }
select { min-height: 2.25rem; padding: .3rem .6rem; border: 1px solid var(--edge); border-radius: .55rem; background: var(--card); color: var(--ink); font: inherit; font-size: .92rem; }
.danger { background: var(--bad); color: var(--card); }
.danger:hover, .danger:active { background: var(--bad); text-decoration: underline; }
button[aria-disabled="true"] { opacity: .6; cursor: progress; }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 3px; border-radius: .3rem; }
[tabindex="-1"]:focus { outline: none; }

.actions { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.5rem 0; }
.actions > * { width: auto; min-width: min(100%, 12rem); }
.outcome { max-width: 44rem; padding: 1.8rem 2rem; }
.outcome > :last-child { margin-bottom: 0; }
.outcome .notice { margin-bottom: 1rem; background: var(--well); }
.foot { margin-top: 1.75rem; padding-top: 1rem; border-top: 1px solid var(--line); color: var(--soft); font-size: .92rem; overflow-wrap: anywhere; }
.till { border: 2px dashed var(--bad); }
.bill { display: flex; flex-wrap: wrap; justify-content: space-between; align-items: baseline; gap: 0 1.5rem; margin: 1.5rem 0 0; padding: .9rem 0; border-top: 1px solid var(--line); border-bottom: 1px solid var(--line); font-size: 1.45rem; font-weight: 680; letter-spacing: -.015em; }
.bill dd { margin: 0; }
.facts { display: grid; grid-template-columns: auto 1fr; gap: .35rem 1.5rem; margin: 1.1rem 0 0; }
.facts dt { color: var(--soft); }
.facts dd { margin: 0; }

.copy-head { display: flex; align-items: end; justify-content: space-between; gap: 1rem; margin: 1.75rem 0 .55rem; min-height: 2.25rem; }
.copy-head h2, .copy-head h3 { margin: 0; }
pre { margin: 0 0 1.25rem; padding: .9rem 1.1rem; background: var(--card); border: 1px solid var(--line); border-radius: .6rem; overflow-x: auto; tab-size: 2; }
pre.key { font-size: clamp(.82rem, 3.75vw, 1.25rem); padding: 1.05rem .85rem; border: 2px solid var(--accent); overflow-wrap: anywhere; white-space: pre-wrap; }
pre.key, pre.line { user-select: all; -webkit-user-select: all; }
.pair { display: grid; gap: 0 1.5rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); }
.pair > div { min-width: 0; }
.notice { margin: 1.25rem 0 0; padding: .85rem 1.1rem; border: 1px solid var(--line); border-left: .25rem solid var(--accent); border-radius: .3rem .6rem .6rem .3rem; background: var(--card); max-width: none; }
noscript pre, .notice + p { margin-top: 1rem; }
noscript pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.notice.bad { border-left-color: var(--bad); }

.enter { padding: 1.4rem 1.6rem 1.5rem; margin-top: 1.75rem; max-width: 42rem; }
.enter label { display: block; font-weight: 620; margin-bottom: .4rem; }
.enter p { margin: .6rem 0 0; font-size: .94rem; }
.row { display: flex; flex-wrap: wrap; gap: .75rem; }
.row > button { width: auto; flex: 1 0 auto; }
.key-field { flex: 1 1 19rem; min-width: 0; min-height: 2.9rem; padding: .5rem .8rem; color: var(--ink); background: var(--well); border: 1px solid var(--edge); border-radius: .55rem; -webkit-text-security: disc; }
#problem .notice { max-width: 42rem; }
.title-row { display: flex; flex-wrap: wrap; align-items: center; justify-content: space-between; gap: .75rem 1.5rem; margin-top: 2rem; }
.title-row h2 { margin: 0; font-size: 1.35rem; letter-spacing: -.01em; }
.title-row .row { gap: .5rem; }
.title-row .row > * { flex: 1 0 auto; }
.badge { display: inline-block; margin-left: .4rem; padding: .05rem .6rem; border: 1px solid var(--accent); border-radius: 1rem; color: var(--accent); font-size: .85rem; font-weight: 600; letter-spacing: 0; vertical-align: .12em; }
.totals { display: flex; flex-wrap: wrap; gap: 1px; margin: 1.25rem 0 0; overflow: hidden; }
.totals div { flex: 1 0 auto; min-width: min(100%, 9.5rem); background: var(--card); padding: 1rem 1.25rem; box-shadow: 0 0 0 1px var(--line); }
.totals dt { color: var(--soft); font-size: .92rem; }
.totals dd { margin: .1rem 0 0; font-size: clamp(1.05rem, 4.4vw, 1.45rem); font-weight: 660; letter-spacing: -.015em; font-variant-numeric: tabular-nums; white-space: nowrap; }
.badge.bad { border-color: var(--bad); color: var(--bad); }
#renewal, #key-facts { margin: .5rem 0 0; }
#renewal:empty, #key-facts:empty { display: none; }
#key-facts { overflow-wrap: anywhere; }
.offers { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 17rem), 26rem)); margin: 1.1rem 0 0; padding: 0; list-style: none; }
.offer { display: flex; flex-direction: column; justify-content: space-between; gap: 1.1rem; min-width: 0; padding: 1.1rem 1.25rem 1.25rem; border: 1px solid var(--line); border-radius: .7rem; background: var(--page); }
.offer h4 { margin: 0; font-size: 1rem; color: var(--accent); }
.offer .price { margin: .1rem 0 .7rem; font-size: 1.45rem; line-height: 1.2; font-weight: 680; letter-spacing: -.02em; }
.offer .price small { font-size: .95rem; font-weight: 400; letter-spacing: 0; color: var(--soft); }
.offer ul { margin: 0; padding: 0; list-style: none; font-size: .95rem; }
.offers + .soft { margin: 1rem 0 0; }
.panels { display: grid; gap: 1.25rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); margin-top: 1.25rem; }
.panels > :nth-child(odd):last-child { grid-column: 1 / -1; }
.panel { margin: 0; padding: 1.3rem 1.5rem 1.4rem; }
.panel > h3 { margin-bottom: .8rem; }
.panel + .panel-alone, .panel-alone { margin-top: 1.25rem; }
.gauges { display: grid; gap: 1.1rem 2.5rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 19rem), 1fr)); margin: 0; padding: 0; list-style: none; }
.gauges p { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 1rem; margin: 0; max-width: none; }
.gauges strong, .gauges .soft span { white-space: nowrap; }
.gauges .soft { font-size: .92rem; }
.gauges svg { display: block; width: 100%; height: .5rem; margin: .35rem 0; border-radius: .25rem; background: var(--well); box-shadow: inset 0 0 0 1px var(--line); }
.gauges rect { fill: var(--accent); }
.gauges .full rect { fill: var(--bad); }
.plot { display: grid; grid-template-columns: auto minmax(0, 1fr); gap: .3rem .6rem; color: var(--soft); font-size: .82rem; font-variant-numeric: tabular-nums; }
.plot .scale { display: flex; flex-direction: column; justify-content: space-between; text-align: right; line-height: 1; }
.plot svg { display: block; width: 100%; height: 11rem; border-bottom: 1px solid var(--edge); background: linear-gradient(var(--line) 1px, transparent 1px) 0 0 / 100% 50%; }
.plot .days { grid-column: 2; display: flex; justify-content: space-between; }
.plot g:hover .hit { fill: var(--well); opacity: .7; }
.hit { fill: transparent; }
.s0 { fill: var(--accent); background: var(--accent); }
.s1 { fill: var(--series-1); background: var(--series-1); }
.s2 { fill: var(--series-2); background: var(--series-2); }
.s3 { fill: var(--series-3); background: var(--series-3); }
.s4 { fill: var(--series-4); background: var(--series-4); }
.s5 { fill: var(--series-rest); background: var(--series-rest); }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; margin: .9rem 0 0; padding: 0; list-style: none; font-size: .9rem; }
.legend li { min-width: 0; overflow-wrap: anywhere; }
.legend i { display: inline-block; width: .75em; height: .75em; margin-right: .45em; border-radius: .15em; forced-color-adjust: none; }
.scroll { overflow-x: auto; margin-top: .5rem; max-height: 28rem; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { padding: .42rem .65rem; vertical-align: top; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th { font-weight: 600; }
thead th { white-space: normal; vertical-align: bottom; position: sticky; top: 0; background: var(--card); color: var(--soft); }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left; }
td:nth-child(2) { white-space: normal; overflow-wrap: anywhere; min-width: 9rem; }
.panel > .small { margin-top: .25rem; }
.panel > details + .small { margin-top: .9rem; }
dialog { width: min(30rem, calc(100vw - 2rem)); padding: 1.6rem; border: 1px solid var(--line); border-radius: .9rem; background: var(--card); color: var(--ink); }
dialog::backdrop { background: rgb(10 15 20 / .55); }
dialog h2 { margin: 0 0 .6rem; font-size: 1.2rem; }
dialog .row { margin-top: 1.4rem; }

@media (max-width: 30rem) { .totals div { min-width: 40%; padding: .8rem 1.15rem; } .title-row .row > * { padding-left: .6rem; padding-right: .6rem; } .actions > * { flex: 1 0 auto; } .tier, .panel, .enter, .outcome { padding-left: 1.15rem; padding-right: 1.15rem; } }
@media (forced-colors: active) { button, .button { border: 1px solid ButtonText; } .plot rect, .gauges rect { fill: CanvasText; } .hit { fill: transparent !important; } }
@media print {
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .tier, .card { box-shadow: none; }
  body { display: block; min-height: 0; background: none; }
  main { padding-top: 1rem; padding-bottom: 0; }
  .card, .tier, .offer, .notice, pre, .gauges li, .legend, tr { break-inside: avoid; }
  h1, h2, h3, h4 { break-after: avoid; }
  .panels, .tiers { grid-template-columns: 1fr 1fr; }
  .tier { display: block; }
  .card:has(details[open] table) { break-inside: auto; }
  .scroll { max-height: none; overflow: visible; }
  nav, button, .button, select, summary, #subscription, #offers, [aria-labelledby="rotate-title"] { display: none !important; }
}
`;
