// Replaces parts of the page by those of a page that the server makes anew: lists while somebody types, and parts that follow by themselves.
// A request for a document is the way from text to elements that Trusted Types allow.
function load(url, onDocument) {
  const request = new XMLHttpRequest();
  request.open('GET', url);
  request.responseType = 'document';
  request.onload = () => request.response !== null && onDocument(request.response);
  request.send();
  return request;
}

/** Returns whether the other page has the part. */
function replacePart(id, page) {
  const [old, part] = [document.getElementById(id), page.getElementById(id)];
  if (old === null || part === null) return false;
  // Not under the hands of somebody who uses it.
  if (!old.contains(document.activeElement)) old.replaceWith(document.adoptNode(part));
  return true;
}

for (const { id, dataset } of document.querySelectorAll('[data-follows]'))
  setInterval(() => {
    if (!document.hidden) load(dataset.follows, (page) => replacePart(id, page));
  }, 15000);

for (const form of document.querySelectorAll('form[data-finds]')) {
  const count = document.getElementById('count');
  let timer;
  let running;
  form.addEventListener('input', () => {
    clearTimeout(timer);
    running?.abort();
    timer = setTimeout(() => {
      const fields = new URLSearchParams(new FormData(form));
      for (const [name, value] of [...fields]) if (value === '') fields.delete(name);
      const url = fields.size === 0 ? location.pathname : `${location.pathname}?${fields}`;
      running = load(url, (page) => {
        const problem = page.querySelector('#rejection, #problem');
        if (problem !== null) count.textContent = problem.textContent;
        else if (replacePart(form.dataset.finds, page)) {
          history.replaceState(null, '', url);
          count.textContent = page.getElementById('count').textContent;
        } else location.reload();
      });
    }, 200);
  });
}
