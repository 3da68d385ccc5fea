// How the pages look: one style for all of them, without images, fonts or anything else that would have to be loaded.
// Colours keep a contrast of at least 4.5 to 1 for text and 3 to 1 for controls (WCAG 2.2, 1.4.3 and 1.4.11), light and dark.

export const STYLE = `
:root {
  color-scheme: light dark;
  --page: #f4f6f8; --card: #ffffff; --well: #eef1f4; --line: #d3dae1; --edge: #7b8794;
  --ink: #16202b; --soft: #52606d; --accent: #0b6b57; --on-accent: #ffffff; --press: #095746;
  --shadow: 0 1px 2px rgb(22 32 43 / .06), 0 4px 16px rgb(22 32 43 / .05);
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0f151b; --card: #18212a; --well: #10171e; --line: #2c3843; --edge: #73818f;
    --ink: #e6ecf1; --soft: #a3b0bc; --accent: #5fcfb2; --on-accent: #06231d; --press: #83dec6;
    --shadow: none;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
main { max-width: 66rem; margin: 0 auto; padding: clamp(1.75rem, 6vw, 4rem) 1.25rem; }
h1 { font-size: clamp(1.6rem, 5vw, 2.1rem); line-height: 1.15; letter-spacing: -.015em; margin: 0 0 .6rem; text-wrap: balance; }
h2 { font-size: 1.05rem; line-height: 1.3; margin: 2rem 0 .6rem; }
p { margin: 0 0 1rem; max-width: 42rem; }
a { color: var(--accent); text-underline-offset: .15em; }
.soft { color: var(--soft); }
code, pre { font: .9em/1.55 ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace; }

.tiers { display: grid; gap: 1.25rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 17rem), 1fr)); margin: 2.25rem 0 0; padding: 0; list-style: none; }
.tier { display: flex; flex-direction: column; background: var(--card); border: 1px solid var(--line); border-radius: .9rem; padding: 1.6rem; box-shadow: var(--shadow); min-width: 0; }
.tier h2 { margin: 0; font-size: 1rem; color: var(--accent); }
.tier .price { margin: .3rem 0 0; font-size: 1.9rem; line-height: 1.2; font-weight: 680; letter-spacing: -.02em; }
.tier .price small { font-size: 1rem; font-weight: 400; letter-spacing: 0; color: var(--soft); }
.tier h3 { margin: 1.25rem 0 .45rem; font-size: .8rem; font-weight: 600; color: var(--soft); }
.tier ul { margin: 0; padding: 0; list-style: none; }
.limits li { padding: .42rem 0; border-top: 1px solid var(--line); }
.limits li:last-child { border-bottom: 1px solid var(--line); }
.models { display: flex; flex-wrap: wrap; gap: .4rem; }
.models li { min-width: 0; }
.models code { display: block; padding: .12rem .5rem; border-radius: .4rem; background: var(--well); overflow-wrap: anywhere; }
details { margin-top: .5rem; }
summary { cursor: pointer; color: var(--accent); padding: .2rem 0; }
details .models { margin-top: .4rem; }
.order { margin-top: auto; padding-top: 1.5rem; }
.order p { margin: 0; color: var(--soft); }

button { display: block; width: 100%; min-height: 2.9rem; padding: .6rem 1rem; border: 0; border-radius: .55rem; background: var(--accent); color: var(--on-accent); font: inherit; font-weight: 620; cursor: pointer; }
button:hover, button:active { background: var(--press); }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 3px; border-radius: .3rem; }

pre { margin: 0 0 1.25rem; padding: .9rem 1.1rem; background: var(--card); border: 1px solid var(--line); border-radius: .6rem; overflow-x: auto; tab-size: 2; }
pre.key { font-size: clamp(.85rem, 3.9vw, 1.2rem); padding: 1rem .85rem; border: 2px solid var(--accent); overflow-wrap: anywhere; white-space: pre-wrap; }
pre.key, pre.line { user-select: all; -webkit-user-select: all; }
.notice { margin: 1.25rem 0 0; padding: .85rem 1.1rem; border-left: .25rem solid var(--accent); border-radius: .3rem .6rem .6rem .3rem; background: var(--card); max-width: none; }

@media (forced-colors: active) { button { border: 1px solid ButtonText; } }
@media print { .notice, pre { break-inside: avoid; } }
`;
