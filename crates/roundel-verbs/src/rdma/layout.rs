//! How layouts and constants of C headers are written down, so that a test can compare them with the headers.

macro_rules! structs {
    ($($(#[$meta:meta])* pub struct $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy)]
            $(#[$meta])*
            pub struct $name { $(pub $field: $type,)* }
        )*

        /// `struct field offset size`, and `struct - size alignment`, a line each.
        #[cfg(test)]
        pub fn layouts() -> Vec<String> {
            let mut lines = Vec::new();
            $(
                lines.push(format!(
                    "{} - {} {}",
                    stringify!($name), size_of::<$name>(), align_of::<$name>()
                ));
                $(
                    lines.push(format!(
                        "{} {} {} {}",
                        stringify!($name),
                        stringify!($field),
                        std::mem::offset_of!($name, $field),
                        size_of::<$type>()
                    ));
                )*
            )*
            lines
        }
    };
}

macro_rules! constants {
    ($($name:ident: $type:ty = $value:expr;)*) => {
        $(pub const $name: $type = $value;)*

        /// Name and value of every constant.
        #[cfg(test)]
        pub const CONSTANTS: &[(&str, i64)] = &[$((stringify!($name), $value as i64),)*];
    };
}

pub(super) use {constants, structs};
