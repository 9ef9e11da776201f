// The contrast of each visible text with the colours behind it, by WCAG's definition: {texts: how many, poor: those below 4.5}.
(() => {
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const over = (top, below) => ({
    r: top.r * top.a + below.r * (1 - top.a),
    g: top.g * top.a + below.g * (1 - top.a),
    b: top.b * top.a + below.b * (1 - top.a),
    a: 1,
  });
  const luminance = ({ r, g, b }) => {
    const [x, y, z] = [r, g, b].map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    const below = element.parentElement ? behind(element.parentElement) : { r: 255, g: 255, b: 255, a: 1 };
    return over(parse(getComputedStyle(element).backgroundColor), below);
  };
  const opacity = (element) => Number(getComputedStyle(element).opacity) * (element.parentElement ? opacity(element.parentElement) : 1);
  let texts = 0;
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes].filter((n) => n.nodeType === Node.TEXT_NODE).map((n) => n.data).join("").trim();
    if (text === "" || element.closest(".unseen, script, noscript") || !element.checkVisibility()) continue;
    texts++;
    const back = behind(element);
    const colour = parse(getComputedStyle(element).color);
    const front = over({ ...colour, a: colour.a * opacity(element) }, back);
    const [light, dark] = [luminance(front), luminance(back)].sort((a, b) => b - a);
    const contrast = (light + 0.05) / (dark + 0.05);
    if (contrast < 4.5) poor.push(`${text}: ${contrast.toFixed(2)}`);
  }
  return { texts, poor };
})()
