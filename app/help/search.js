// Filter over the headings of the help. The list is loaded when the field is first used.

const MOST = 30;
const box = document.querySelector("#search");
const field = document.querySelector("#words");
const status = document.querySelector("#found");
const hits = document.querySelector("#hits");

let loading;

/** Loads all headings once: rows of page title, heading and address. */
function headings() {
  loading ??= fetch(`${box.dataset.root}search.json`)
    .then((response) => (response.ok ? response.json() : Promise.reject(new Error(response.statusText))))
    .then((pages) =>
      pages.flatMap(([place, title, inside]) => [
        { title, heading: "", place },
        ...inside.map(([heading, anchor]) => ({ title, heading, place: `${place}#${anchor}` })),
      ]),
    )
    .catch(() => {
      loading = undefined;
      return null;
    });
  return loading;
}

function entry({ title, heading, place }) {
  const link = document.createElement("a");
  link.href = box.dataset.root + place;
  link.textContent = heading ? `${title}: ${heading}` : title;
  const item = document.createElement("li");
  item.append(link);
  return item;
}

async function find() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  const all = await headings();
  if (words.join() !== field.value.toLowerCase().split(/\s+/).filter(Boolean).join()) return;
  if (all === null) status.textContent = "The headings could not be loaded.";
  else if (!words.length) status.textContent = "";
  const found = (words.length && all ? all : []).filter(({ title, heading }) =>
    words.every((word) => `${title} ${heading}`.toLowerCase().includes(word)),
  );
  if (words.length && all)
    status.textContent = found.length === 1 ? "1 heading" : `${found.length} headings`;
  hits.replaceChildren(...found.slice(0, MOST).map(entry));
}

field.addEventListener("input", find);
box.hidden = false;
