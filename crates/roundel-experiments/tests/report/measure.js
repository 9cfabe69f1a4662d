// Finds texts of drawings that cover each other or leave the drawing, and where drawings are, in the
// page that is in the frame.
window.addEventListener("load", () => {
  const page = document.getElementById("page").contentDocument;
  // The corners of a text on the page, without the room that its font leaves above and below.
  const corners = (text) => {
    const box = text.getBBox();
    const inset = box.height * 0.14;
    const matrix = text.getScreenCTM();
    const corner = (x, y) => new DOMPoint(x, y).matrixTransform(matrix);
    const [left, right] = [box.x + 0.5, box.x + box.width - 0.5];
    const [top, bottom] = [box.y + inset, box.y + box.height - inset];
    return [corner(left, top), corner(right, top), corner(right, bottom), corner(left, bottom)];
  };
  // Convex shapes are apart when a line through a side of either has all of the other beyond it.
  const separated = (a, b) =>
    a.some((from, index) => {
      const to = a[(index + 1) % a.length];
      const side = (p) => (to.x - from.x) * (p.y - from.y) - (to.y - from.y) * (p.x - from.x);
      const inside = Math.sign(a.map(side).reduce((sum, value) => sum + value, 0));
      return b.every((p) => side(p) * inside <= 0);
    });
  const clashes = (svg) => {
    const frame = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map((text) => [text.textContent, corners(text)]);
    const found = [];
    texts.forEach(([words, shape], index) => {
      const outside = (p) =>
        p.x < frame.left - 0.5 || p.x > frame.right + 0.5 || p.y < frame.top - 0.5 || p.y > frame.bottom + 0.5;
      if (shape.some(outside)) found.push(`"${words}" leaves the drawing`);
      for (const [others, other] of texts.slice(index + 1)) {
        if (!separated(shape, other) && !separated(other, shape)) found.push(`"${words}" covers "${others}"`);
      }
    });
    return found;
  };
  const figures = [...page.querySelectorAll("article.figure")].map((article) => {
    const svg = [...article.querySelectorAll("svg")].find((svg) => svg.getBoundingClientRect().width > 0);
    const box = svg.getBoundingClientRect();
    const lines = [...svg.querySelectorAll("line.grid, line.base")].map((line) => line.getBoundingClientRect());
    const plotTop = Math.min(...lines.map((line) => line.top));
    const plotBottom = Math.max(...lines.map((line) => line.bottom));
    return {
      id: article.id,
      text: article.innerText,
      drawing: { left: box.left, top: box.top, width: box.width, height: box.height },
      // Markers at zero are half below.
      plot: {
        left: lines[0].left,
        top: plotTop,
        width: lines[0].width,
        height: plotBottom - plotTop + 5,
      },
      clashes: clashes(svg),
    };
  });
  const root = page.documentElement;
  const measured = { width: root.clientWidth, height: root.scrollHeight, overflows: root.scrollWidth > root.clientWidth, figures };
  document.getElementById("measured").textContent = "MEASURED" + JSON.stringify(measured) + "MEASURED";
});
