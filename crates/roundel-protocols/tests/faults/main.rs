//! Every protocol in every paradigm, on every provider, with whatever can go wrong: each call gets its answer or one
//! typed error within its deadline, no answer is another's, and no request is carried out twice.

mod book;
mod faulty;
mod killed;
mod machine;
mod nodes;
mod real;
mod simulated;
