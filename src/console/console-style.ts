// The style of the console, beside that of all pages.
export const CONSOLE_STYLE = `
html { scroll-padding: 1rem; }
.top { flex-wrap: wrap; }
.skip { position: absolute; top: .4rem; left: .4rem; z-index: 1; padding: .4rem .8rem; background: var(--card); color: var(--ink); }
.skip:not(:focus) { clip-path: inset(50%); }
.top nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; }
.top nav a[aria-current] { color: var(--ink); font-weight: 620; text-decoration: none; }
.top form { display: flex; align-items: center; gap: .8rem; margin-left: auto; }
.records th, .records td, .records td:nth-child(n) { text-align: left; min-width: 4rem; max-width: 22rem; white-space: normal; overflow-wrap: break-word; }
.records th { white-space: nowrap; }
.records time { white-space: nowrap; }
.records td:first-child { min-width: 8rem; }
.card pre:not(.key) { white-space: pre-wrap; overflow-wrap: anywhere; }
.records th.number, .records td.number:nth-child(n) { text-align: right; white-space: nowrap; }
.fields { display: flex; flex-wrap: wrap; align-items: end; gap: .6rem 1rem; margin: 0 0 1rem; }
.fields .field { display: flex; flex-direction: column; gap: .2rem; flex: 1 1 13rem; min-width: 0; font-size: .92rem; }
.fields .field:has([type="checkbox"]) { flex-direction: row; align-items: center; flex: 0 1 auto; }
.fields input:not([type="checkbox"]), .fields select { width: 100%; min-width: 0; min-height: 2.25rem; padding: .3rem .6rem; border: 1px solid var(--edge); border-radius: .55rem; background: var(--card); color: var(--ink); font: inherit; }
.records .fields { margin: 0; flex-wrap: nowrap; gap: .5rem; }
.records .fields .field { flex: 1 1 8rem; }
.facts dd { overflow-wrap: anywhere; min-width: 0; }
.panel > h2 { margin: 0 0 .8rem; }
.panel > details { margin-bottom: .8rem; }
.bars { margin: 1rem 0; }
.bars figcaption { color: var(--soft); font-size: .92rem; }
.bars svg { display: block; width: 100%; height: 8rem; border-bottom: 1px solid var(--edge); }
.plain { margin: 0; padding: 0; list-style: none; }
.fields > .alert { flex-basis: 100%; max-width: none; margin: 0; }
[aria-invalid] { border-color: var(--bad) !important; }
.alert { color: var(--bad); }
`;
