//! The page in a real browser: what is drawn, and whether all text can be read.
//!
//! Needs Chromium. Where there is none, these tests say that they are skipped, unless
//! `ROUNDEL_TEST_CHROMIUM=required`.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Command;

use roundel_experiments::report::to_html;
use serde::Deserialize;
use zune_png::PngDecoder;

use super::html::parse;
use super::sample;

/// Measures the page, in the page.
const MEASURE: &str = include_str!("measure.js");

/// The width of the browser's window.
const WIDEST: u32 = 1280;

/// What [`MEASURE`] found.
#[derive(Deserialize)]
struct Measured {
    /// Of the window that the page saw.
    width: u32,
    height: f64,
    /// Whether something is wider than the window.
    overflows: bool,
    figures: Vec<Drawn>,
}

/// A figure as it is on the page.
#[derive(Deserialize)]
struct Drawn {
    id: String,
    /// Of the whole region, with the words.
    text: String,
    drawing: Area,
    /// The part of the drawing that has lines or bars, and no labels but the values of bars.
    plot: Area,
    /// Texts of the drawing that cover each other, or leave it.
    clashes: Vec<String>,
}

/// From the top left of the page, in pixels.
#[derive(Deserialize)]
struct Area {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

fn chromium() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    let found = std::env::split_paths(&paths)
        .flat_map(|directory| names.map(|name| directory.join(name)))
        .find(|path| path.is_file());
    if found.is_none() {
        let required = std::env::var("ROUNDEL_TEST_CHROMIUM").is_ok_and(|told| told == "required");
        assert!(
            !required,
            "ROUNDEL_TEST_CHROMIUM=required, but no {names:?} in PATH"
        );
        eprintln!(
            "SKIPPED: no {names:?} in PATH: nobody looked at the page; apt-get install chromium"
        );
    }
    found
}

struct Browser {
    chromium: PathBuf,
    directory: tempfile::TempDir,
}

impl Browser {
    fn open() -> Option<Self> {
        let chromium = chromium()?;
        Some(Self {
            chromium,
            directory: tempfile::tempdir().unwrap(),
        })
    }

    fn run(&self, window: (u32, u32), dark: bool, page: &Path, wanted: &str) -> String {
        let output = Command::new(&self.chromium)
            .args([
                "--headless",
                "--disable-gpu",
                "--hide-scrollbars",
                "--force-device-scale-factor=1",
            ])
            // Tests may run as root, where the sandbox does not; the page is our own.
            .args(["--no-sandbox", "--disable-dev-shm-usage", "--no-first-run"])
            .arg(format!(
                "--user-data-dir={}",
                self.directory.path().join("profile").display()
            ))
            .arg(format!("--window-size={},{}", window.0, window.1))
            .arg(format!(
                "--blink-settings=preferredColorScheme={}",
                u8::from(!dark)
            ))
            .arg(wanted)
            .arg(format!("file://{}", page.display()))
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "chromium: {}\n{told}",
            output.status
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// A page that has `html` in a frame: windows are not as narrow as the screens of telephones.
    fn framed(&self, html: &str, (width, height): (u32, u32)) -> PathBuf {
        let html = html.replace('&', "&amp;").replace('"', "&quot;");
        let style = format!("border:0;display:block;width:{width}px;height:{height}px");
        let page = format!(
            "<!DOCTYPE html><html><head><meta charset=utf-8>\
             <meta name=color-scheme content='light dark'></head><body style='margin:0'>\
             <iframe id=page style='{style}' srcdoc=\"{html}\"></iframe>\
             <pre id=measured></pre><script>{MEASURE}</script></body></html>"
        );
        let path = self.directory.path().join("page.html");
        fs::write(&path, page).unwrap();
        path
    }

    fn measure(&self, html: &str, width: u32) -> Measured {
        let page = self.framed(html, (width, 1000));
        let dom = self.run((WIDEST, 1000), false, &page, "--dump-dom");
        let text = parse(&dom).text;
        let measured = text.split("MEASURED").nth(1).expect("the script ran");
        let measured: Measured = serde_json::from_str(measured).unwrap();
        assert_eq!(measured.width, width);
        measured
    }

    /// `ROUNDEL_TEST_REPORT=DIR` keeps the pictures.
    fn keep_for_a_look(&self, width: u32, dark: bool) {
        if let Some(kept) = std::env::var_os("ROUNDEL_TEST_REPORT") {
            let name = format!("{width}-{}.png", if dark { "dark" } else { "light" });
            fs::create_dir_all(&kept).unwrap();
            fs::copy(
                self.directory.path().join("page.png"),
                Path::new(&kept).join(name),
            )
            .unwrap();
        }
    }

    fn screenshot(&self, html: &str, window: (u32, u32), dark: bool) -> Picture {
        let page = self.framed(html, window);
        let path = self.directory.path().join("page.png");
        self.run(
            (WIDEST, window.1),
            dark,
            &page,
            &format!("--screenshot={}", path.display()),
        );
        Picture::read(&path)
    }
}

struct Picture {
    width: usize,
    height: usize,
    /// Red, green and blue, row by row.
    pixels: Vec<[u8; 3]>,
}

impl Picture {
    fn read(path: &Path) -> Self {
        let mut decoder = PngDecoder::new(BufReader::new(File::open(path).unwrap()));
        let bytes = decoder.decode_raw().unwrap();
        let (width, height) = decoder.dimensions().unwrap();
        let samples = bytes.len() / (width * height);
        assert!(samples == 3 || samples == 4, "{samples} bytes for a pixel");
        let pixels = bytes
            .chunks_exact(samples)
            .map(|pixel| [pixel[0], pixel[1], pixel[2]]);
        Self {
            width,
            height,
            pixels: pixels.collect(),
        }
    }

    fn at(&self, x: usize, y: usize) -> [u8; 3] {
        assert!(
            x < self.width && y < self.height,
            "{x}, {y} is outside of the picture"
        );
        self.pixels[y * self.width + x]
    }

    fn of(&self, area: &Area) -> Vec<[u8; 3]> {
        let (left, top) = (area.left.ceil() as usize, area.top.ceil() as usize);
        let (right, bottom) = (
            left + area.width as usize - 1,
            top + area.height as usize - 1,
        );
        (top..bottom)
            .flat_map(|y| (left..right).map(move |x| self.at(x, y)))
            .collect()
    }
}

fn distance(a: [u8; 3], b: [u8; 3]) -> u32 {
    a.iter().zip(b).map(|(a, b)| u32::from(a.abs_diff(b))).sum()
}

/// Pixels that are no grey, as all labels and axes are.
fn coloured(pixels: &[[u8; 3]]) -> usize {
    let colour = |pixel: &[u8; 3]| {
        let (low, high) = pixel
            .iter()
            .fold((255, 0), |(low, high), c| (low.min(*c), high.max(*c)));
        high - low
    };
    pixels.iter().filter(|pixel| colour(pixel) > 60).count()
}

/// A marker with a line through it has about so many.
const FEW_PIXELS: usize = 30;

#[test]
fn all_text_of_figures_can_be_read() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let html = to_html(&sample::report());
    for width in [WIDEST, 900, 640, 480, 360] {
        let measured = browser.measure(&html, width);
        assert!(!measured.overflows, "the page is wider than {width}");
        for drawn in &measured.figures {
            assert_eq!(
                drawn.clashes,
                Vec::<String>::new(),
                "{} at {width}",
                drawn.id
            );
        }
    }
}

#[test]
fn what_clashes_is_found() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let html = to_html(&sample::report());
    // All text in one place.
    let piled = html.replace("</style>", ".fig text { transform: translate(0, 0) !important; }\n.fig { font-size: 40px !important; }</style>");
    let measured = browser.measure(&piled, WIDEST);
    assert!(
        measured
            .figures
            .iter()
            .any(|drawn| !drawn.clashes.is_empty())
    );
}

#[test]
fn figures_are_drawn_in_light_and_dark() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let report = sample::report();
    let html = to_html(&report);
    let figures: Vec<_> = report.figures().collect();
    for width in [WIDEST, 480] {
        let measured = browser.measure(&html, width);
        assert_eq!(measured.figures.len(), figures.len());
        for dark in [false, true] {
            let picture = browser.screenshot(&html, (width, measured.height as u32 + 100), dark);
            browser.keep_for_a_look(width, dark);
            for (drawn, figure) in measured.figures.iter().zip(&figures) {
                assert_eq!(drawn.id, figure.id);
                for words in [&figure.title, &figure.paper_saw, &figure.paper] {
                    assert!(drawn.text.contains(words.as_str()), "{}: {words}", drawn.id);
                }
                let pixels = picture.of(&drawn.drawing);
                let paper = pixels[0];
                let bright = paper.iter().all(|part| *part > 200);
                let dim = paper.iter().all(|part| *part < 60);
                assert!(if dark { dim } else { bright }, "{}: {paper:?}", drawn.id);
                let inked = pixels
                    .iter()
                    .filter(|pixel| distance(**pixel, paper) > 60)
                    .count();
                assert!(
                    inked > pixels.len() / 200,
                    "{} is blank: {inked} pixels",
                    drawn.id
                );
                let data = coloured(&picture.of(&drawn.plot));
                let expected = drawn.id != "nothing";
                assert_eq!(
                    data >= FEW_PIXELS,
                    expected,
                    "{} has {data} pixels of data",
                    drawn.id
                );
            }
        }
    }
}

#[test]
fn figures_without_marks_are_found() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let hidden =
        ".fig :is(.line, .band, .whisker, .bar, .bar-whisker, .marker) { display: none; }</style>";
    let html = to_html(&sample::report()).replace("</style>", hidden);
    let measured = browser.measure(&html, WIDEST);
    let picture = browser.screenshot(&html, (WIDEST, measured.height as u32 + 100), false);
    for drawn in &measured.figures {
        assert_eq!(coloured(&picture.of(&drawn.plot)), 0, "{}", drawn.id);
    }
}
