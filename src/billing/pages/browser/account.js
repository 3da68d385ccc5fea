// @ts-check
// The account page: asks for the key, fetches its usage and replaces it; charts.js draws, and standing.js shows billing. The key
// is only in the variable below: not in storage, cookies, the address or the history.

let key = '';
let isBusy = false;
/** Whether there is, or may be, a new key that is not copied yet. */
let isUnsaved = false;
/** Raised when the key is forgotten, so that a late answer is not shown. */
let visit = 0;
/** The report that is shown. @type {UsageReport | undefined} */
let shown;

const USAGE = 'admin/usage?days=';
const ROTATE = 'admin/keys/rotate';
const KEY = 'admin/keys/current';
const ORDER = 'checkout';
const PORTAL = 'checkout/portal';
const REFRESH = 'checkout/refresh';
const TIMEOUT_MS = 30_000;
const IN_DOUBT =
  'The key may have been replaced nevertheless. Refresh: if this key is rejected, ask support for a new one.';

const field = at('key-field', HTMLInputElement);
const period = at('period', HTMLSelectElement);
const dialog = at('confirm', HTMLDialogElement);
const form = at('enter', HTMLFormElement);

/** Whether the holder comes from the customer portal: then the provider is asked what has changed. */
let isReturning = new URLSearchParams(location.search).get('from') === 'portal';

at('returned').hidden = !isReturning;
form.hidden = false;
form.addEventListener('submit', async (event) => {
  event.preventDefault();
  // People paste the whole header, or a line of a shell.
  const entered = field.value.trim().replace(/^(?:authorization\s*:\s*)?bearer\s+/i, '');
  // A request with it would count as a bad key.
  if (!/^[0-9a-f]{32}$/.test(entered)) {
    complain('That is not a key: a key is 32 characters long, digits and the letters a to f.');
    field.focus();
    return;
  }
  if (await show(entered)) {
    field.value = '';
    form.hidden = true;
    at('whose').focus();
  } else field.focus();
});
at('refresh').addEventListener('click', () => show(key));
let days = period.value;
period.addEventListener('change', async () => {
  if (await show(key)) days = period.value;
  else period.value = days;
});
at('csv').addEventListener('click', download);
at('leave').addEventListener('click', () => {
  // A new key in a pending answer would be lost.
  if (!isBusy) leave();
});
at('rotate').addEventListener('click', () => dialog.showModal());
at('keep').addEventListener('click', () => dialog.close());
at('replace').addEventListener('click', rotate);
for (const button of all('[data-order]'))
  button.addEventListener('click', () => order(button.dataset['order'] ?? ''));
document.getElementById('manage')?.addEventListener('click', manage);
at('stored').addEventListener('click', () => {
  forgetFresh();
  at('whose').focus();
});
at('fresh').addEventListener('copy', saved);
document.querySelector('[data-copies="fresh-key-text"]')?.addEventListener('click', saved);
addEventListener('beforeunload', (event) => {
  if (isUnsaved) event.preventDefault();
});
// A page in the back/forward cache would still have the key.
addEventListener('pagehide', leave);

/** Fetches and draws the report. @param {string} candidate @returns {Promise<boolean>} whether it succeeded */
async function show(candidate) {
  const begun = visit;
  if (isReturning) {
    // Without an answer the events of the provider do the same.
    await call('POST', REFRESH, candidate);
    complain('');
    isReturning = false;
    at('returned').hidden = true;
  }
  const answer = await call('GET', USAGE + period.value, candidate);
  if (answer === undefined || begun !== visit) return false;
  /** @type {UsageReport} */
  const report = answer;
  if (!Array.isArray(report.days) || !Array.isArray(report.limits)) {
    complain('The gateway answered with something that this page cannot read.');
    return false;
  }
  key = candidate;
  shown = report;
  draw(report);
  showStanding(report);
  at('said').textContent = `Usage of the key ${report.prefix} is shown.`;
  const facts = await call('GET', KEY, candidate);
  if (begun === visit) at('key-facts').textContent = facts === undefined ? '' : keyText(facts);
  return true;
}

/** @param {{ name: string | null, created_at: string, expires_at: string | null, last_used: string | null }} key */
function keyText({ name, created_at, expires_at, last_used }) {
  const used = last_used === null ? 'not used yet' : `last used on ${dayText(last_used)}`;
  const expiry = expires_at === null ? 'does not expire' : `expires on ${dayText(expires_at)}`;
  return `${name === null ? 'Issued' : `${name}: issued`} on ${dayText(created_at)}, ${used}, ${expiry}.`;
}

async function rotate() {
  dialog.close();
  if (isBusy) return;
  isUnsaved = true;
  const answer = await call('POST', ROTATE, key, IN_DOUBT);
  isUnsaved = typeof answer?.key === 'string';
  if (answer === undefined) return;
  if (!isUnsaved)
    return complain(`The gateway answered with something that this page cannot read. ${IN_DOUBT}`);
  key = answer.key;
  at('fresh-key-text').textContent = answer.key;
  at('replaced').textContent = `${answer.replaces}…`;
  namePrefix(answer.prefix);
  at('fresh').hidden = false;
  at('fresh-key').focus();
  await show(key);
}

/** Orders a tier for the holder of the key, and opens the payment page. @param {string} tier */
function order(tier) {
  // The nonce makes a repeated order idempotent.
  const nonce = document.getElementById('offers')?.dataset['nonce'];
  return openPage(ORDER, { tier, nonce }, 'Opening the payment page.', 'Nothing was charged.');
}

/** Opens the customer portal of the payment provider. */
function manage() {
  return openPage(PORTAL, {}, 'Opening your subscription at the payment provider.');
}

/**
 * Opens the page whose URL the gateway answers.
 * @param {string} path @param {object} content @param {string} said for screen readers
 * @param {string} [doubt] what holds where there is no URL
 */
async function openPage(path, content, said, doubt = '') {
  if (isBusy) return;
  const begun = visit;
  const answer = await call('POST', path, key, `${doubt} Try again in a moment.`.trim(), content);
  if (answer === undefined || begun !== visit) return;
  if (!/^https?:\/\//.test(answer.url))
    return complain(`The gateway answered with something that this page cannot read. ${doubt}`.trim());
  at('said').textContent = said;
  location.assign(answer.url);
}

/** Forgets the key and its data. */
function leave() {
  key = '';
  visit += 1;
  field.value = '';
  forgetFresh();
  shown = undefined;
  for (const id of ['totals', 'limits', 'requests-chart', 'tokens-chart', 'cost-chart', 'table'])
    at(id).replaceChildren();
  complain('');
  at('said').textContent = '';
  for (const id of ['renewal', 'key-facts']) at(id).textContent = '';
  at('report').hidden = true;
  form.hidden = false;
  field.focus();
}

/** Saves the shown days as CSV (RFC 4180), with the names of the API. */
function download() {
  if (shown === undefined) return;
  const { days: rows, currency = '', prefix, from, to } = shown;
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const lines = rows.map((row) =>
    [
      ...names.map((name) => csvCell(Reflect.get(row, name))),
      csvCell(typeof row.cost === 'number' ? currency : ''),
    ].join(','),
  );
  const text = `${[[...names, 'currency'].join(','), ...lines].join('\r\n')}\r\n`;
  const address = URL.createObjectURL(new Blob([text], { type: 'text/csv' }));
  const link = node('a', { href: address, download: `usage-${prefix}-${from}-${to}.csv` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** Spreadsheets would run a text that begins like a formula. @param {string | number | null | undefined} value */
function csvCell(value) {
  const text = typeof value === 'string' && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? '');
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function saved() {
  isUnsaved = false;
}

function forgetFresh() {
  saved();
  at('fresh-key-text').textContent = '';
  at('fresh').hidden = true;
}

/**
 * Makes a request with the key. Shows a message when it fails.
 * @param {'GET' | 'POST'} method @param {string} path @param {string} bearer
 * @param {string} [doubt] message when there is no answer
 * @param {object} [content] sent as JSON
 * @returns {Promise<any>} undefined when it failed
 */
async function call(method, path, bearer, doubt = 'Try again in a moment.', content) {
  if (isBusy) return undefined;
  busy(true);
  complain('');
  try {
    const response = await fetch(path, {
      method,
      headers: {
        authorization: `Bearer ${bearer}`,
        ...(content === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(content === undefined ? {} : { body: JSON.stringify(content) }),
      cache: 'no-store',
      credentials: 'omit',
      redirect: 'error',
      referrerPolicy: 'no-referrer',
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    const body = await response.json().catch(() => undefined);
    if (path.startsWith(USAGE)) warnOfExpiry(response.headers.get('x-tollgate-key-expires'));
    if (response.ok && body !== undefined) return body;
    complain(response.ok ? `The answer of the gateway was cut short. ${doubt}` : wordsFor(response, body));
  } catch {
    complain(`The gateway did not answer. ${doubt}`);
  } finally {
    busy(false);
  }
  return undefined;
}

/** @param {string | null} time of a key in its last week */
function warnOfExpiry(time) {
  at('expires').textContent = dayText(time);
  at('expiry').hidden = time === null;
}

/** @param {Response} response @param {any} body */
function wordsFor({ status, headers }, body) {
  const wait = Number(headers.get('retry-after'));
  const later = wait > 0 ? `Try again in ${span(wait)}.` : 'Try again in a moment.';
  if (status === 401) return 'This key is not valid: it was mistyped, replaced or revoked.';
  // Errors of orders have messages for people.
  if (/^(order_|payment_|already_|billing_|checkout_|no_subscription)/.test(body?.error?.code))
    return wait > 0 ? `${body.error.message} ${later}` : String(body.error.message);
  if (status === 429) return `Too many requests, or too many invalid keys, came from your address. ${later}`;
  if (status === 503)
    return `The gateway cannot look that up at the moment. This says nothing about the key. ${later}`;
  if (status === 404) return 'This gateway does not report usage.';
  return `That did not work: ${body?.error?.message ?? `the gateway answered with status ${status}`}`;
}

/** @param {string} text empty to remove the message */
function complain(text) {
  at('problem').replaceChildren(...(text === '' ? [] : [node('p', { class: 'notice bad' }, text)]));
}

/** Marks the buttons during a request; disabling them would take the focus away. @param {boolean} now */
function busy(now) {
  isBusy = now;
  for (const button of all('#show, #refresh, #period, #rotate, #replace, #manage, [data-order]'))
    button.setAttribute('aria-disabled', String(now));
}
