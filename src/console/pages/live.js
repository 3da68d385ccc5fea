// Shows the figures as the gateway sends them, and says when none come.
const RETRY_MS = 5000;
const STALE_MS = 12000;
let timer;

function listen() {
  const source = new EventSource('/console/live');
  source.onmessage = ({ data }) => {
    for (const [id, text] of Object.entries(JSON.parse(data))) show(id, text);
    expect();
  };
  // A source tries again by itself, but not after an answer that is no stream: while the store is away, or after a sign-out.
  source.onerror = () => source.readyState === EventSource.CLOSED && setTimeout(listen, RETRY_MS);
}

function show(id, text) {
  if (id.startsWith('service-'))
    for (const form of document.querySelectorAll(`[data-service="${CSS.escape(id.slice(8))}"]`))
      form.hidden = 'drained' in form.dataset !== (text === 'resume');
  const element = document.getElementById(`now-${id}`);
  if (element === null || element.textContent === text) return;
  element.textContent = text;
  if (element.classList.contains('badge')) element.classList.toggle('bad', text !== 'ok');
}

function expect() {
  clearTimeout(timer);
  const note = document.getElementById('now-stale');
  note.hidden = true;
  timer = setTimeout(() => {
    note.hidden = false;
  }, STALE_MS);
}

listen();
expect();
