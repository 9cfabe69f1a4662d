//! How reports look, as readers of files and browsers see them.

mod colours;
mod files;
mod hostile;
mod html;
mod sample;
mod svg;
