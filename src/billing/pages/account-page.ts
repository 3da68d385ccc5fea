// The account page: a form for the key, and placeholders that browser/account.js fills. The key reaches the gateway only in the
// header of the script's requests.
import { eachLimit } from '../../config/limit-table.ts';
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { baseUrl } from '../base-url.ts';
import { billingNotices, subscriptionPanel, tierOffers, upgradeCommand } from './account-offers.ts';
import { quoted } from './key-page.ts';
import { answerPage, asking, copyButton, type Html, html, NOTHING } from './page-frame.ts';
import { ACCOUNT, COPY } from './page-scripts.ts';
import { AMBIGUOUS, dateLocale, localeOf } from './price-text.ts';

/** Texts for the script, by the limit's name in the report. */
const LIMIT_NAMES = JSON.stringify(eachLimit(({ many }) => many.charAt(0).toUpperCase() + many.slice(1)));

/** `GET /account` */
export function answerAccount(exchange: Exchange, config: DynamicConfig): void {
  const root = baseUrl(exchange, config).replace(/\/v1$/, '');
  const bearer = 'curl -H "Authorization: Bearer $OPENAI_API_KEY"';
  const locale = localeOf(exchange);
  const offers = tierOffers(config, locale);
  const upgrade = upgradeCommand(quoted(`${root}/checkout`), config);
  answerPage(exchange, 200, {
    title: 'Your key',
    path: 'account',
    branding: config.branding,
    scripts: [COPY, ACCOUNT],
    calls: true,
    // The field has no name, so that no form submits it, even without the script.
    body: html`<h1>Your key</h1>
<p class="lead">Your usage, the state of your limits, and what you can change.</p>
<noscript><p class="notice">This page needs JavaScript. Without it, use these commands.</p>
${command('Usage of the key', `${bearer} ${quoted(`${root}/admin/usage?days=30`)}`)}
${command('Replace the key', `${bearer} -X POST ${quoted(`${root}/admin/keys/rotate`)}`)}
${config.billing === undefined ? NOTHING : command('Manage the subscription: the answer has the URL of the customer portal', `${bearer} -X POST ${quoted(`${root}/checkout/portal`)}`)}
${upgrade === undefined ? NOTHING : command('Order another tier: the answer has the URL of the payment page', upgrade)}</noscript>
<form id="enter" class="card enter" autocomplete="off" hidden>
<label for="key-field">API key</label>
<div class="row"><input class="key-field" id="key-field" type="text" autocomplete="off" autocapitalize="off" autocorrect="off" spellcheck="false" maxlength="200" required aria-describedby="problem key-hint"><button type="submit" id="show">Show usage</button></div>
<p class="notice" id="returned" hidden>You are back from the payment provider. Enter your key again to see what has changed.</p>
<p id="key-hint" class="soft">It stays in the memory of this tab: it is not stored, and it is forgotten when you reload or leave the page.</p>
</form>
<div id="problem" role="alert"></div>
<p class="unseen" role="status" id="said"></p>
<section id="fresh" aria-labelledby="fresh-key" hidden>
<p class="notice"><strong>Copy the new key now: it is shown only this once.</strong> The old one, <code id="replaced" translate="no"></code>, no longer works. This page now uses the new one.</p>
<div class="copy-head"><h2 id="fresh-key" tabindex="-1">Your new key</h2>${copyButton('fresh-key', 'new key')}</div>
<pre class="key" id="fresh-key-text" role="group" aria-labelledby="fresh-key" tabindex="0" translate="no"></pre>
<button type="button" class="quiet small" id="stored">I have stored it</button>
</section>
<section id="report" aria-labelledby="whose" data-locale="${locale}" data-date-locale="${dateLocale(locale)}" data-ambiguous="${AMBIGUOUS.source}" hidden>
<div class="title-row"><h2 id="whose" tabindex="-1">Key <code id="prefix" translate="no"></code> <span class="badge" id="tier"></span> <span class="badge bad" id="suspended" hidden>Suspended</span></h2>
<div class="row"><label class="unseen" for="period">Period</label><select id="period" class="small"><option value="7">Last 7 days</option><option value="30" selected>Last 30 days</option><option value="90">Last 90 days</option></select>${offers === NOTHING ? NOTHING : html`<a class="button quiet small" href="#offers-title" id="to-offers" hidden>Change tier</a>`}<button type="button" class="quiet small" id="refresh">Refresh</button><button type="button" class="quiet small" id="leave">Use another key</button></div></div>
<p class="soft" id="key-facts"></p>
<p class="soft" id="renewal"></p>
<p class="notice" id="expiry" hidden><strong>This key expires on <span id="expires"></span>.</strong> From then on requests with it are rejected, and a replacement expires with it. To go on, ${asking(config.branding, 'My key')}.</p>
${billingNotices(config)}<dl class="totals card" id="totals"></dl>
<section class="card panel panel-alone" aria-labelledby="limits-title"><h3 id="limits-title">Limits</h3><ul class="gauges" id="limits" data-names="${LIMIT_NAMES}"></ul></section>
<div class="panels" id="charts">
<section class="card panel" aria-labelledby="requests-title"><h3 id="requests-title">Requests a day</h3><div id="requests-chart"></div></section>
<section class="card panel" aria-labelledby="tokens-title"><h3 id="tokens-title">Tokens a day</h3><div id="tokens-chart"></div></section>
<section class="card panel" aria-labelledby="cost-title" id="cost"><h3 id="cost-title">Cost a day</h3><div id="cost-chart"></div></section>
</div>
<section class="card panel panel-alone" aria-labelledby="table-title"><h3 id="table-title">Day by day</h3>
<p class="soft" id="table-note"></p>
<details id="table-fold"><summary>Show the table</summary><div class="scroll" role="group" aria-labelledby="table-title" tabindex="0" id="table"></div></details>
<button type="button" class="quiet small" id="csv">Download as CSV</button></section>
${subscriptionPanel(config)}${offers}
<section class="card panel panel-alone" aria-labelledby="rotate-title"><h3 id="rotate-title">Replace this key</h3>
<p>You get a new key, and this one stops working at once. Limits and usage continue, because they belong to you and not to the key. Replace the key when others may have seen it.</p>
<button type="button" class="quiet small" id="rotate">Replace this key…</button></section>
</section>
<dialog id="confirm" aria-labelledby="confirm-title" aria-describedby="confirm-text">
<h2 id="confirm-title">Replace this key?</h2>
<p id="confirm-text">The key <code id="confirm-prefix" translate="no"></code> stops working at once. Every program that uses it is rejected until it has the new key. This cannot be undone.</p>
<div class="row"><button type="button" class="quiet" id="keep">Keep it</button><button type="button" class="danger" id="replace">Replace it now</button></div>
</dialog>`,
  });
}

function command(label: string, line: string): Html {
  return html`<h2>${label}</h2>
<pre class="line" tabindex="0" role="group" aria-label="${label}" translate="no">${line}</pre>`;
}
